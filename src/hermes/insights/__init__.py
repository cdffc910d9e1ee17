"""NUMBERS about sessions: `InsightsEngine(db).generate(days=30)` counts; other modules put it into words and pages."""

from hermes.insights.engine import InsightsEngine

__all__ = ["InsightsEngine"]
