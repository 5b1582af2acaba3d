"""Texts in, tokens out: bundle_serving.texts, with the tokenizer that the recipe names."""

from bundle_serving.step_reports import reported
from bundle_serving.texts import TextError, TextRecipe, to_texts, to_tokens
from bundle_serving.triton import answer, array, parameter, version_folder


@reported
class TritonPythonModel:
    def initialize(self, args):
        folder = version_folder(args)
        self.recipe = TextRecipe.load(folder / parameter(args, "recipe_file"))
        self.tokenizer = self.recipe.tokenizer(folder)

    def execute(self, requests):
        return [answer(self.tokens, request, callers_faults=(TextError,)) for request in requests]

    def tokens(self, request):
        texts = to_texts(array(request, "QUERY"))
        return to_tokens(texts, self.tokenizer, self.recipe.task_prefix)
