"""Objects over HTTP, in Kubernetes' form: get, list, watch, create, update, patch, delete, for every kind alike.

A kind needs no line here: everything reads the register in `isthmus.resources.kinds`.
"""
