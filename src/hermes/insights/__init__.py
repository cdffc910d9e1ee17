"""NUMBERS about sessions: `InsightsEngine(db).generate(days=30)` counts; other modules put it into words and pages."""

from hermes.insights.report import InsightsEngine

__all__ = ["InsightsEngine"]
