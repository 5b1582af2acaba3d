"""What its commands are given."""

from scripts.settings.setting import number, path, path_or_url, text, whole_or_none

of = path_or_url("A folder with requests that were kept.")
most = whole_or_none("How many pictures to copy, those most worth a label.")
forget = text("", "The id of a request of which nothing is to be kept.")
seal = path("A file to write the private key to, for which requests are encrypted from now on.")
key = path("The private key of requests that were encrypted.")
url = text("", "Another server to ask: host:port.")
speed = number("1", "How many times as fast as then requests are asked again.")
