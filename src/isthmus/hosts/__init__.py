"""What owns machines: the contract that a driver of hosts fulfils (`base`), and a folder for each driver."""
