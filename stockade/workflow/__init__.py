"""Which repair order defends best: orders, compliance, training with an alignment reward, GP-UCB search.

orders -> proposals (Gaussian process) -> search -> engine -> training (PPO on aligned environments, compliance)
"""
