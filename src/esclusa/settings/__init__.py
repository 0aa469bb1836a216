"""Settings: one typed object from a TOML file, the environment and the command line."""

from esclusa.settings.access import ApiToken, is_loopback
from esclusa.settings.loader import load
from esclusa.settings.model import SYSTEM_OPTIONS, Settings

__all__ = ["SYSTEM_OPTIONS", "ApiToken", "Settings", "is_loopback", "load"]
