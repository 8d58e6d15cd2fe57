"""Topics as Dagster components: `dg scaffold defs lakehouse.TopicComponent NAME` adds one."""
