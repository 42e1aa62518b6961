"""What people look at: tables, figures, reports."""
