"""Values and rules that everything else builds on: no input or output, no framework, nothing of this project above."""
