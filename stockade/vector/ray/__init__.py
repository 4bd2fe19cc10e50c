"""Backend `ray`: environments in actors, on this machine or a cluster. Ray is imported only when it is needed."""
