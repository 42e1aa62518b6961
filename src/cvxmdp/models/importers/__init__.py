"""Models from elsewhere: successor functions, Gymnasium's tables, PRISM, UMB."""
