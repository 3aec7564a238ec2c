"""An extension of Model Explorer: `model-explorer --extensions=msprobe_client.explorer FILE.msprobe`."""
