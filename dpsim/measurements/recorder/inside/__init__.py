"""What runs in the script's own Python: patches of torch.distributed, and the recorder.

It imports nothing of dpsim (dpsim need not be installed there) and takes torch by
`importlib.import_module`, so that dpsim itself stays free of torch.
"""


class Stop(BaseException):
    """Ends the script: with the reason of a refusal, or without one when all is recorded."""
