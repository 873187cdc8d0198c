"""Reports: tables and figures, made from run directories alone."""
