"""What is answered on which path over HTTP."""
