"""What people run and import: settings, metrics, command line, client, embedded broker, demo."""
