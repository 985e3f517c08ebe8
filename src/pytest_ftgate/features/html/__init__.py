"""The report as one HTML page that opens offline: `page.py` is what it says, `plots.py` what its plots are drawn from.

`assets/` holds the template, its style and script, and the plot library with its licences.
"""
