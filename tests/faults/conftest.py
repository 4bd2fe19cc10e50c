"""Every test here is watched for what it leaves behind."""

from tests.vector.leaks import no_leaks

__all__ = ["no_leaks"]
