"""What programs under chaos run on: proxies, network namespaces and disks that fail on command."""
