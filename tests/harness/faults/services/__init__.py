"""The services of the product on real servers that tests harm, each with what must be there in the end, by SQL."""
