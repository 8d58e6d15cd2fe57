"""`lakehouse query`: run one statement in one of the engines that read the tables."""
