"""What a group of rows can be turned into: sums and counts, extremes, first and last, distinct values, quantiles."""
