"""The model repository on S3. Only location.py is there for those without: boto3 is a layer."""
