"""The pages: each module has its handlers and, in `PAGES`, the method and path of each."""
