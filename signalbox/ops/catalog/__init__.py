"""Commands of operators on the console's catalog of models: ``signalbox models ...``."""
