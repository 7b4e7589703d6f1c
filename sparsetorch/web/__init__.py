"""A page that runs .tflite files in a browser, dense and sparse side by side, and the server for it."""
