"""Who am I, who else is there, how do we meet: ranks, devices, state, guards, collectives."""
