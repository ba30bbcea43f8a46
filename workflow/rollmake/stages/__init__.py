"""One module a stage: read, call the core, write atomically. Rule, subcommand, module, test and schema share its name."""
