"""Backend `ray`: environments in actors, on this machine or a cluster. Ray is imported when it is needed, not before.

env (the vector environment) -> cluster (Ray and its actors, seen from here; the actor as it runs somewhere)
"""
