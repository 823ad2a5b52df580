"""Machines whose BMC speaks Redfish (DMTF DSP0266)."""
