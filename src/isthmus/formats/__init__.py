"""Other systems' documents, in and out. Pure: text or objects in, text or objects out.

What belongs here: reading and writing formats that others defined. What does not: asking anybody for their content.
"""
