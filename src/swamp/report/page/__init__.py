"""The report: one page, made from run directories alone."""
