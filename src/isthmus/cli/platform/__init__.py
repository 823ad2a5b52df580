"""Commands about the platform itself: start, stop, check, install, export and import, the console, labs."""
