"""`lakehouse query`: one statement, asked of one of the engines that read the tables."""
