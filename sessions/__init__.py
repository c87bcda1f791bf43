"""What a session is and how it is kept."""
