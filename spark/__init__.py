"""The engine of the pipeline on Spark (engine.py), and its functions, which take and return DataFrames."""
