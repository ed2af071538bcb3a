"""One loader for each format of models. They run in the model's own process, see ``model_process``."""
