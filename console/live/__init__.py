"""The live board and browsers: the websocket, who may listen to it, and the alarms that the database knows of."""
