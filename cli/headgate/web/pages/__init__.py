"""The pages: HTML made on the server from the values of ``state``. They work without a script; with it they are live
and go by the keyboard."""
