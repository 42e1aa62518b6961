"""What every room needs: errors, pytrees, precision, files, progress. It knows nothing of models."""
