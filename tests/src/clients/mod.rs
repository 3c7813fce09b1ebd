//! Drivers for MCP clients that nobody here wrote.
