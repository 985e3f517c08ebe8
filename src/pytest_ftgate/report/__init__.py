"""Every printed form of a Report: each module is a pure function from Report to text."""
