"""What is measured of running jobs: samples and reported values, kept as time series, read live, exported.

Belongs here: reading the journals that samplers at the sites write, finding reported values in output, the embedded
store of series, and the forms they are exported in. Sampling itself is the engines' (it happens where the job runs);
HTTP is in `api`. What the platform measures of itself is in `metrics`.
"""
