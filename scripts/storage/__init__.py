"""The model repository on S3. Without S3, only location.py is used: boto3 is a separate layer."""
