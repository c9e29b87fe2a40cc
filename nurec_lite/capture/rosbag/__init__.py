# SPDX-License-Identifier: Apache-2.0
"""Reader of ROS recordings: ROS 1 bags, ROS 2 bags (sqlite3 and MCAP), with a YAML that says which topic is which sensor."""
