"""Plans of a deployment: order, differences, drawings."""
