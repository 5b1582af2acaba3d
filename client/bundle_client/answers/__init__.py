"""What the server answers, as a program wants it: labels, boxes, areas, vectors."""
