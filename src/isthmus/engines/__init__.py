"""What runs work: the contract (`base`) and one folder per driver. Drivers do not import each other."""
