"""The users' functions that compute derived topics."""

import importlib
import sys

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import ConfigError
from lakehouse.pipeline.engine_values import Transform


def transform(config: Config, topic: Topic) -> Transform:
    """Return the function that computes a derived topic, from an installed module or one beside lakehouse.yaml.

    Raises:
        ConfigError: It cannot be imported.
    """
    assert isinstance(topic.source, Derived)
    module, _, function = topic.source.transform.partition(":")
    # At the end, so that a file of the project hides no installed module.
    if str(config.root) not in sys.path:
        sys.path.append(str(config.root))
    try:
        imported: Transform = getattr(importlib.import_module(module), function)
        return imported
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"lakehouse.yaml: topic '{topic.name}': transform '{topic.source.transform}' cannot be imported: {error}. "
            f"Nothing was produced. Correct `transform`, or its module"
        ) from error
