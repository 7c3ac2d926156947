"""Looking at runs afterwards: what their journals say, in brief."""
