"""The frozen values of the package: Spec -> Plan -> Launch -> Sample -> Comparison -> Verdict -> Report."""
