"""What a network costs: weights, multiply-accumulates, bytes."""

from sparsetorch.analysis.accounting import Account, LayerAccount, account

__all__ = ["Account", "LayerAccount", "account"]
